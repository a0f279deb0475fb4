"""What would it have cost otherwise, and can the log be predicted?"""
